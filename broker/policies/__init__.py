"""The settings of a broker, a namespace or a topic: policies, profiles, retention. Pure."""
