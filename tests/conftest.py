"""Settings of all tests: property-based ones are judged by what they find, not by the clock."""

from hypothesis import settings

# A busy machine is no fault of the code, and a test that fails must fail again.
settings.register_profile("forewarn", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("forewarn")
