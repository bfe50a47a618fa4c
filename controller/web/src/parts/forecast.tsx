import { Label } from '@patternfly/react-core';
import type { Pool } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';

/** Sooner than this somebody should do something. */
const SOON_DAYS = 14;

/** In how many days a data pool is full. */
export function PoolForecast({ forecast: { state, days, basis } }: Pick<Pool, 'forecast'>) {
  const { texts } = useWords();
  const words = texts.pools.forecast;
  if (state !== 'filling' || days === null)
    return <span className="vk-small">{state === 'steady' ? words.steady : words.unknown}</span>;
  const text = basis === 'backups' ? words.ofBackups(words.full(days)) : words.full(days);
  return days > SOON_DAYS ? (
    <span className="vk-small">{text}</span>
  ) : (
    <Label isCompact variant="outline" status="warning" className="vk-state">
      {text}
    </Label>
  );
}
