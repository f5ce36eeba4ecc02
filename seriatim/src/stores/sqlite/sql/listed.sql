-- What listings read: lanes that are held or paused, and those with failures, most first. Both are rare.
CREATE INDEX lane_parked ON lane (q) WHERE st = 3;
CREATE INDEX lane_worst ON lane (q, -retry) WHERE retry >= 0;
