/** Pools to choose from. */
import { FormSelectOption } from '@patternfly/react-core';
import type { Pool } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';

/** An option for each pool that can be written to, with its room. */
export function PoolOptions({ pools }: { pools: readonly Pool[] | undefined }) {
  const { texts, format } = useWords();
  return (pools ?? [])
    .filter(({ readonly, outside }) => !readonly && !outside)
    .map(({ id, verbose_name, free_space }) => (
      <FormSelectOption
        key={id}
        value={id}
        label={`${verbose_name} (${format.size(free_space)} ${texts.common.free})`}
      />
    ));
}
