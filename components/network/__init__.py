"""VPC, subnets, routes, endpoints and security groups."""
