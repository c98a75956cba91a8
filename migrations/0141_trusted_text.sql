-- Whether read-only tools of an MCP server may be called without an approval in a conversation that has
-- read text from outside: the server learns what it is asked.
alter table control.mcp_servers add column harmless boolean not null default false;

-- Whether the conversation that wrote it had read text from outside. Todos have it in their body.
alter table work.worklog add column outside boolean not null default false;
alter table work.wakeups add column outside boolean not null default false;
