/** What of the API document has to be said in the words of OpenAPI 3.0 before the converter can do the rest. */

/** `anyOf` of something and null is `nullable` there; of the ways of 3.1 to say so the converter knows only the list of types. */
export function nullsAsFlags(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(nullsAsFlags);
  if (typeof value !== 'object' || value === null) return value;
  const same = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, nullsAsFlags(part)]));
  const { anyOf, ...rest } = same;
  if (!Array.isArray(anyOf)) return same;
  const [something, ...others] = anyOf.filter(({ type }) => type !== 'null');
  if (others.length > 0 || anyOf.length === 1) return same;
  // nothing may stand beside a reference
  const part = '$ref' in something ? { allOf: [something] } : something;
  return { ...part, ...rest, nullable: true };
}
