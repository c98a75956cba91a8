-- More languages that a tenant's model providers may speak.

alter table control.providers drop constraint providers_kind_check,
    add constraint providers_kind_check check (
        kind in ('openai', 'openai-responses', 'anthropic', 'gemini', 'ollama', 'demo')
    );
