-- A run whose turn began late may take as long as one that began at once.

alter table schedule.firings
    -- How many seconds it may take from when its turn begins. Null unless it waited for that for
    -- longer than it may take.
    add column patience double precision check (patience >= 0);
