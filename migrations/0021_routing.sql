-- Bindings and rules by which a model chooses the agent (docs/routing.md).

alter table control.bindings
    -- As `types::ModelRoute`; null is always the agent. The agent is who stands in, and whose
    -- sessions they are.
    add column by_model jsonb;
alter table control.rules
    add column by_model jsonb;
