-- The queue mode steer_backlog, and bindings with several agents (docs/routing.md).

alter table session.inbox drop constraint inbox_mode_check;
alter table session.inbox add constraint inbox_mode_check
    check (mode in ('steer', 'followup', 'collect', 'interrupt', 'steer_backlog')) not valid;

-- Further agents that answer each message of a binding.
alter table control.bindings add column also uuid[] not null default '{}';
