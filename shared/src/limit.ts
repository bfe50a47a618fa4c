/** Runs a job for each item, at most `width` at a time; results in the order of the items. Rejects with the first failure. */
export async function mapLimited<T, R>(
  items: readonly T[],
  width: number,
  job: (item: T) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  let next = 0;
  const lane = async () => {
    for (let index = next++; index < items.length; index = next++) results[index] = await job(items[index]!);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
  return results;
}
