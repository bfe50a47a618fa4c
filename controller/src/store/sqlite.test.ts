import { expect, test } from '@jest/globals';
import { openSqlite } from './sqlite.ts';

test('many who ask one thing after another keep nobody else from the event loop for long', async () => {
  const db = openSqlite(':memory:');
  try {
    await db.schema.createTable('tags').addColumn('id', 'text').execute();
    let isDone = false;
    let turns = 0;
    const turn = () => {
      turns += 1;
      if (!isDone) setImmediate(turn);
    };
    setImmediate(turn);
    const asks = async () => {
      for (let count = 0; count < 300; count += 1) await db.selectFrom('tags').select('id').execute();
    };
    const from = performance.now();
    await Promise.all(Array.from({ length: 20 }, asks));
    isDone = true;
    // each lasts twenty milliseconds and the query that began before their end
    expect(turns).toBeGreaterThan((performance.now() - from) / 200);
  } finally {
    await db.destroy();
  }
});
