-- A delivery that is sent again by hand is retried as often as a new one. `attempt` keeps growing,
-- because it tells the results of two sends apart.
alter table session.deliveries
    -- Attempts before the delivery was last sent again by hand.
    add column attempts_before integer not null default 0;
