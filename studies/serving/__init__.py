"""An engine under load with speculation, predicted from what was timed before."""
