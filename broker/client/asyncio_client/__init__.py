"""The API for asyncio."""
