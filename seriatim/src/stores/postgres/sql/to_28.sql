-- From version 27: groups that are left from a time when a queue had some got no turn beside others; functions changed too.
UPDATE seriatim.queue SET shares = jsonb_set(shares, '{each,weight}', '1000')
WHERE (shares->'each'->>'weight')::bigint = 4294967295;
