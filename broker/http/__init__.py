"""The admin REST API, `/admin/v2` of Pulsar, over HTTP."""
