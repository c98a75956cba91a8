//! WordPiece tokenizer of BERT, uncased: lower case, without accents.

use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{Model, Tokenizer, TruncationParams};

use crate::Error;

/// Number of positions in BERT's input.
const MAX_TOKENS: usize = 512;
/// One token per line; the line number is the token's id. Published with BERT under Apache-2.0.
const VOCABULARY: &str = include_str!("../../data/bert-uncased-vocab.txt");
/// Characters of a text that are tokenized. Enough for about 512 of the longest tokens, so the rest
/// would be truncated anyway.
const MAX_CHARS: usize = 8 * 1024;

#[derive(Debug)]
pub struct TextTokenizer(Tokenizer);

/// Token ids and attention masks of several texts, padded to one width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBatch {
    pub ids: Vec<i64>,
    pub mask: Vec<i64>,
    pub width: usize,
}

impl TokenBatch {
    pub fn rows(&self) -> usize {
        self.ids.len() / self.width.max(1)
    }
}

impl TextTokenizer {
    pub fn new() -> Result<Self, Error> {
        let vocabulary = WordPiece::read_bytes(VOCABULARY.as_bytes()).map_err(Error::Failed)?;
        let pieces = WordPiece::builder().vocab(vocabulary).build().map_err(Error::Failed)?;
        let special = |token: &str| (token.to_owned(), pieces.token_to_id(token).unwrap_or(0));
        let marks = BertProcessing::new(special("[SEP]"), special("[CLS]"));
        let mut tokenizer = Tokenizer::new(pieces);
        tokenizer
            .with_normalizer(Some(BertNormalizer::default()))
            .map_err(Error::Failed)?
            .with_pre_tokenizer(Some(BertPreTokenizer))
            .with_post_processor(Some(marks));
        let cut = TruncationParams { max_length: MAX_TOKENS, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(cut)).map_err(Error::Failed)?;
        Ok(Self(tokenizer))
    }

    pub fn batch(&self, texts: &[String]) -> Result<TokenBatch, Error> {
        let mut rows = Vec::with_capacity(texts.len());
        for text in texts {
            let end = text.char_indices().nth(MAX_CHARS).map_or(text.len(), |(at, _)| at);
            let read = self.0.encode_fast(&text[..end], true).map_err(Error::Failed)?;
            rows.push(read.get_ids().to_vec());
        }
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut batch = TokenBatch { ids: Vec::new(), mask: Vec::new(), width };
        for row in rows {
            let padding = std::iter::repeat_n(0i64, width - row.len());
            batch.mask.extend(std::iter::repeat_n(1i64, row.len()).chain(padding.clone()));
            batch.ids.extend(row.iter().map(|id| i64::from(*id)).chain(padding));
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOKENS, TextTokenizer};

    #[test]
    fn a_text_is_read_as_the_published_tokenizer_reads_it() {
        let batch =
            TextTokenizer::new().unwrap().batch(&["Hello, Wörld! embeddings".into()]).unwrap();

        // [CLS] hello , world ! em ##bed ##ding ##s [SEP]
        assert_eq!(batch.ids, [101, 7592, 1010, 2088, 999, 7861, 8270, 4667, 2015, 102]);
    }

    #[test]
    fn shorter_texts_are_padded_and_the_padding_is_masked() {
        let batch =
            TextTokenizer::new().unwrap().batch(&["tea".into(), "green tea".into()]).unwrap();

        assert_eq!((batch.rows(), batch.width), (2, 4));
        assert_eq!(batch.ids, [101, 5572, 102, 0, 101, 2665, 5572, 102]);
        assert_eq!(batch.mask, [1, 1, 1, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_text_longer_than_the_model_reads_is_cut() {
        let batch = TextTokenizer::new().unwrap().batch(&["tea ".repeat(100_000)]).unwrap();

        assert_eq!(batch.width, MAX_TOKENS);
        assert_eq!(batch.ids.last(), Some(&102));
    }

    #[test]
    fn nothing_to_read_gives_an_empty_batch() {
        assert_eq!(TextTokenizer::new().unwrap().batch(&[]).unwrap().rows(), 0);
    }
}
