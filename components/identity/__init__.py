"""Who may do what beside the nodes: researchers, operators, and how sessions on nodes are opened and logged."""
