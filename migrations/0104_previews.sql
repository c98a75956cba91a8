-- Message in the sender's chat that shows the answer while it is written, kept with the message that
-- is answered. Keys: `id`, the platform's id of the message; `busy_until`, while a call that changes
-- it is being made; `taken`, the delivery that replaces it, or the nil id if none does.
alter table session.inbox add column preview jsonb;
