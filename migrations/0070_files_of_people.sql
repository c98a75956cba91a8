-- Files of people who share an agent (docs/policy.md, decision 0058): a subagent works on the files
-- of the conversation that started it, and so do the steps of a chain. `owner`, or the path of a
-- person's folder; null for those that an earlier version started, which get a folder of their own.
alter table session.subagents
    add column files_of text check (octet_length(files_of) between 1 and 512);
alter table session.chain_runs
    add column files_of text check (octet_length(files_of) between 1 and 512);
