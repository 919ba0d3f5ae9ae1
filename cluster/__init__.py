"""Who does it, where, in what order: roles, server control, the coordinator, the command line. Imports `loadgen`."""
