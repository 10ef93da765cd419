"""Several machines, as a cluster of Ray: parts of a comparison, and replicas of the server."""
