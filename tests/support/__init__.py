"""The shared parts of tests.

Spark is started in the tests' own process, too, and forks there: gRPC must not try to make its
threads survive that, or the child may die before it is Spark. Read when grpc is imported, so it is
said here, before any of these modules is.
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
