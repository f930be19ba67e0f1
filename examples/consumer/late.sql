INSERT INTO late_record (gateway, region, device, time, generation, body)
SELECT json_extract(levels, '$[#-4]'), json_extract(levels, '$[#-2]'), json_extract(levels, '$[#-1]'),
       json_extract(body, '$.time'), json_extract(body, '$.generation'), body
FROM (SELECT '[' || replace(json_quote(:topic), '/', '","') || ']' AS levels, :payload AS body)
WHERE json_extract(levels, '$[#-3]') = 'late'
ON CONFLICT DO NOTHING;
