"""The laboratory of faults: one fault at a time is done to a live local cloud, and what came of it is judged.

`evidence` reads what a run left behind; `verdict` and `timing` are pure functions of that; `report` writes it down.
`node`, `network`, `disks` and `delay_relay` do things to nodes.
"""
