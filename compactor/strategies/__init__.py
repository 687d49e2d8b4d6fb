"""Strategies: which message of a key wins. One module each, pure: numbers in, numbers out."""
