"""What is set on a broker, a namespace or a topic: policies, profiles, retention. Pure."""
