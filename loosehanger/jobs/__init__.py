"""The Spark jobs: what ``spark-jobs/`` submits."""
