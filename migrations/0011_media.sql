-- Deliveries that are more than a text: a file, a poll, a reaction.

-- As `types::Act`; null is a text and nothing else.
alter table session.deliveries add column act jsonb;
