-- MCP servers that run as processes and keep the files of their folder: they are files of the agent,
-- below mcp/<name>/.
alter table control.mcp_servers add column keep boolean not null default false;
