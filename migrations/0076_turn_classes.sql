-- The claim corrects the priority of sessions that a process of a version without priorities has
-- created after 0068 filled them in.
grant update (priority) on session.session_lease to holdfast_system;
