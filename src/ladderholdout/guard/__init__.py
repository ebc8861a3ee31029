"""The guard: metrics, mechanism and ledger together, one transaction per submission.

Other packages import from here. `OpenLadder` is the seam: what goes through it is plain data.
"""
