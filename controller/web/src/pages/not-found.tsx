import { Link } from 'react-router';
import { ViewPage } from '../parts/page.tsx';
import { useWords } from '../texts/index.tsx';

export default function NotFoundPage() {
  const { texts } = useWords();
  return (
    <ViewPage title={texts.errors.notFound}>
      <Link to="/">{texts.errors.home}</Link>
    </ViewPage>
  );
}
