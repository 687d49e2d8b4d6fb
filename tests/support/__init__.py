"""Shared parts of the tests.

Spark also runs in the tests' process and forks there: gRPC must not try to keep its threads across
the fork, or the child may die before it becomes Spark. gRPC reads this when it is imported, so it
is set here, before these modules are.
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
