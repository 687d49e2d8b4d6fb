"""Why a message is, or is not, in the compacted view."""
