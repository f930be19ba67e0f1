INSERT INTO device_result (gateway, window_name, region, device, start,
                           generation, revision, partial, samples, coverage, clock, metrics)
SELECT json_extract(levels, '$[#-5]'), json_extract(levels, '$[#-3]'),
       json_extract(levels, '$[#-2]'), json_extract(levels, '$[#-1]'), json_extract(body, '$.start'),
       json_extract(body, '$.generation'), json_extract(body, '$.revision'),
       coalesce(json_extract(body, '$.partial'), 0), json_extract(body, '$.samples'),
       json_extract(body, '$.coverage'), json_extract(body, '$.clock'), json_extract(body, '$.metrics')
FROM (SELECT '[' || replace(json_quote(:topic), '/', '","') || ']' AS levels, :payload AS body)
WHERE json_extract(levels, '$[#-4]') = 'window'
ON CONFLICT (gateway, window_name, region, device, start) DO UPDATE
SET generation = excluded.generation, revision = excluded.revision, partial = excluded.partial,
    samples = excluded.samples, coverage = excluded.coverage, clock = excluded.clock,
    metrics = excluded.metrics
WHERE (1 - excluded.partial, excluded.partial * excluded.samples, excluded.generation, excluded.revision)
    > (1 - device_result.partial, device_result.partial * device_result.samples,
       device_result.generation, device_result.revision);
