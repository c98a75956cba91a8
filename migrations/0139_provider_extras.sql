-- Headers and fields of the body that a provider's settings add to its requests, and more kinds.

alter table control.providers
    -- A JSON object of headers, sealed with the tenant's data key; null where there are none.
    add column headers bytea,
    add column header_names text[] not null default '{}',
    add column extra_body jsonb not null default '{}',
    drop constraint providers_kind_check,
    add constraint providers_kind_check check (
        kind in ('openai', 'openai-responses', 'anthropic', 'gemini', 'ollama', 'azure', 'vertex',
                 'bedrock', 'demo')
    );
