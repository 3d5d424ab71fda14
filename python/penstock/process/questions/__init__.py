"""Questions over all hosts of a job: who is asked, what each host does for it, and what is made of the answers."""
