import { useEffect, useState } from 'react';

/** The same some while after it was changed last: what is asked for while somebody types. */
export function useSettled<T>(value: T, afterMs: number): T {
  const text = JSON.stringify(value);
  const [settled, setSettled] = useState(value);
  // biome-ignore lint/correctness/useExhaustiveDependencies: its text says whether it is another one
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), afterMs);
    return () => clearTimeout(timer);
  }, [text, afterMs]);
  return settled;
}

/** What is typed, which `set` gets some while after; what is set from elsewhere is shown. */
export function useTyped(present: string, set: (typed: string) => void, afterMs: number) {
  const [typed, setTyped] = useState(present);
  useEffect(() => setTyped(present), [present]);
  useEffect(() => {
    if (typed === present) return;
    const timer = setTimeout(() => set(typed), afterMs);
    return () => clearTimeout(timer);
  }, [typed, present, set, afterMs]);
  return [typed, setTyped] as const;
}
