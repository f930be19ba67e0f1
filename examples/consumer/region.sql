INSERT INTO region_result (gateway, window_name, region, start,
                           generation, revision, partial, samples, reporting, devices, metrics)
SELECT json_extract(levels, '$[#-4]'), json_extract(levels, '$[#-2]'), json_extract(levels, '$[#-1]'),
       json_extract(body, '$.start'), json_extract(body, '$.generation'), json_extract(body, '$.revision'),
       coalesce(json_extract(body, '$.partial'), 0), json_extract(body, '$.samples'),
       json_extract(body, '$.reporting'), json_extract(body, '$.devices'), json_extract(body, '$.metrics')
FROM (SELECT '[' || replace(json_quote(:topic), '/', '","') || ']' AS levels, :payload AS body)
WHERE json_extract(levels, '$[#-3]') = 'region'
ON CONFLICT (gateway, window_name, region, start) DO UPDATE
SET generation = excluded.generation, revision = excluded.revision, partial = excluded.partial,
    samples = excluded.samples, reporting = excluded.reporting, devices = excluded.devices,
    metrics = excluded.metrics
WHERE (1 - excluded.partial, excluded.partial * excluded.samples, excluded.generation, excluded.revision)
    > (1 - region_result.partial, region_result.partial * region_result.samples,
       region_result.generation, region_result.revision);
