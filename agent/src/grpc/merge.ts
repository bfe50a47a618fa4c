/**
 * The items of several streams as they come. Ends when one of them ends, rejects when one rejects; the others are then
 * told to return. At most one item of each stream is held.
 */
export async function* merge<T>(...streams: AsyncIterable<T>[]): AsyncGenerator<T> {
  const iterators = streams.map(stream => stream[Symbol.asyncIterator]());
  const ready: { iterator: AsyncIterator<T>; result: IteratorResult<T> }[] = [];
  let failure: { error: unknown } | undefined;
  let wake = Promise.withResolvers<void>();
  // Not Promise.race: on a stream that is silent for days it would pile up a reaction per item of the others.
  const pull = (iterator: AsyncIterator<T>) => {
    iterator
      .next()
      .then(
        result => {
          ready.push({ iterator, result });
        },
        (error: unknown) => {
          failure = { error };
        },
      )
      .finally(() => wake.resolve());
  };
  for (const iterator of iterators) pull(iterator);
  try {
    for (;;) {
      const item = ready.shift();
      if (item?.result.done) return;
      if (item) {
        yield item.result.value;
        pull(item.iterator);
        continue;
      }
      if (failure) throw failure.error;
      await wake.promise;
      wake = Promise.withResolvers<void>();
    }
  } finally {
    // A generator that waits returns when its wait ends: whoever called us aborts that wait by its signal.
    for (const iterator of iterators) void iterator.return?.()?.catch(() => {});
  }
}
