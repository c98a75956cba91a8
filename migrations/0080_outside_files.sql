-- Each command asks whether a file of its agent has text from outside; few have.
create index files_outside on workspace.files (agent_id) where outside;
