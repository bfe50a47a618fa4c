import { useSession } from '../session.tsx';
import { useWords } from '../texts/index.tsx';

/** Who asks, and in which language: what the reasons are made of. */
export function useAsked() {
  const { session } = useSession();
  const { texts } = useWords();
  return { session, texts };
}
