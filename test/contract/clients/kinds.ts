/** Hand-written types that are held against what arrives: a value of a wrong kind is refused with its place. */

export type Kind<T> = (value: unknown, place: string) => T;
export type Of<K> = K extends Kind<infer T> ? T : never;

function refuse(value: unknown, place: string, wanted: string): never {
  throw new TypeError(`${place} is ${JSON.stringify(value)}, not ${wanted}`);
}

export const text: Kind<string> = (value, place) =>
  typeof value === 'string' ? value : refuse(value, place, 'a text');
export const integer: Kind<number> = (value, place) =>
  Number.isSafeInteger(value) ? (value as number) : refuse(value, place, 'an integer');
export const truth: Kind<boolean> = (value, place) =>
  typeof value === 'boolean' ? value : refuse(value, place, 'a boolean');
export const uuid: Kind<string> = (value, place) =>
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text(value, place))
    ? (value as string)
    : refuse(value, place, 'a UUID');
export const time: Kind<Date> = (value, place) => {
  const date = new Date(text(value, place));
  return Number.isNaN(date.getTime()) ? refuse(value, place, 'a time') : date;
};

export const orNull =
  <T>(kind: Kind<T>): Kind<T | null> =>
  (value, place) =>
    value === null ? null : kind(value, place);

export const listed =
  <T>(kind: Kind<T>): Kind<T[]> =>
  (value, place) =>
    Array.isArray(value)
      ? value.map((item, index) => kind(item, `${place}[${index}]`))
      : refuse(value, place, 'an array');

export const byKey =
  <T>(kind: Kind<T>): Kind<Record<string, T>> =>
  (value, place) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, kind(item, `${place}.${key}`)]))
      : refuse(value, place, 'an object');

/** Fields beside these are let through, as such clients do. */
export const object =
  <F extends Record<string, Kind<unknown>>>(fields: F): Kind<{ [N in keyof F]: Of<F[N]> }> =>
  (value, place) => {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      refuse(value, place, 'an object');
    const given = value as Record<string, unknown>;
    const read = Object.entries(fields).map(([name, kind]) => [name, kind(given[name], `${place}.${name}`)]);
    return Object.fromEntries(read) as { [N in keyof F]: Of<F[N]> };
  };

export const page = <T>(kind: Kind<T>) =>
  object({ count: integer, next: orNull(text), previous: orNull(text), results: listed(kind) });
