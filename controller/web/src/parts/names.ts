/** Several machines that something is done with: some may be on other pages of the list. */
import { useWords } from '../texts/index.tsx';

/** Names by ids. */
export type Machines = ReadonlyMap<string, string>;

const MOST = 10;

/** The first of their names, and how many more there are. */
export function useNames(): (machines: Machines) => string {
  const { texts, format } = useWords();
  return machines => {
    const names = [...machines.values()].toSorted((a, b) => a.localeCompare(b));
    const more = names.length - MOST;
    return [...names.slice(0, MOST), ...(more > 0 ? [texts.common.others(format.number(more))] : [])].join(
      ', ',
    );
  };
}
