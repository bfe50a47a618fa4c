/** Clients that take no memory while they are not called: those of a thousand nodes with all their methods take 150 MiB. */
import type { CompatServiceDefinition } from 'nice-grpc';

/** Makes a client of some methods of a service. */
export type ClientMaker = <D extends CompatServiceDefinition>(definition: D) => object;

/** @param make called for one method at each call of it, which takes 5 µs */
export function lazyClient<C extends object>(
  definition: CompatServiceDefinition & { methods: Record<string, unknown> },
  make: ClientMaker,
): C {
  return new Proxy({} as C, {
    get: (_none, name) => {
      // what is no method is looked for as well: `then`, where it is awaited
      if (!Object.hasOwn(definition.methods, name)) return undefined;
      const methods = { [name]: definition.methods[name as string] };
      return Object.values(make({ ...definition, methods } as typeof definition))[0];
    },
  });
}
