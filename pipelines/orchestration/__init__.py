"""What is to be made next and what became of it: plans, marks of runs, troubles, Dagster's home.

Assets, jobs and sensors are in `pipelines.defs`.
"""
