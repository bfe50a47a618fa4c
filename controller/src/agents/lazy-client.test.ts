import { expect, test } from '@jest/globals';
import {
  type OperationServiceClient,
  OperationServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { type ClientMaker, lazyClient } from './lazy-client.ts';

function clientAndMade() {
  const made: string[][] = [];
  const make: ClientMaker = definition => {
    const names = Object.keys((definition as unknown as { methods: object }).methods);
    made.push(names);
    return Object.fromEntries(names.map(name => [name, () => name]));
  };
  return { made, client: lazyClient<OperationServiceClient>(OperationServiceDefinition, make) };
}

test('a method is made when it is called, and nothing before', () => {
  const { made, client } = clientAndMade();
  expect(made).toEqual([]);
  expect(client.list({})).toBe('list');
  expect(client.cancel({})).toBe('cancel');
  expect(made).toEqual([['list'], ['cancel']]);
});

test('it has no other methods than the service, and can be awaited', async () => {
  const { made, client } = clientAndMade();
  expect((client as unknown as Record<string, unknown>).constructor).toBeUndefined();
  await expect(Promise.resolve(client)).resolves.toBe(client);
  expect(made).toEqual([]);
});
