-- The scheduler tells of reminders that failed, in the transaction in which they end.

grant insert on session.events to holdfast_system;
