"""Names of onnxruntime's graph rewrites, as `disabled_optimizers` of InferenceSession takes them.

The union over releases 1.15 to 1.32 of those that act on the CPU provider; a release ignores a name it does not know.
Source: the constructors' names in onnxruntime/core/optimizer and graph_transformer_utils.cc.
"""

BASIC = """
EliminateIdentity EliminateSlice UnsqueezeElimination EliminateDropout ExpandElimination CastElimination
CastChainElimination PreShapeNodeElimination NoopElimination DivMulFusion FuseReluClip GemmSumFusion
GemmTransposeFusion NotWhereFusion ConvAddFusion ConvMulFusion ConvBNFusion Pad_Fusion
MatMul_BatchNormalization_Fusion LabelEncoderFusion ClipQuantRewrite ReluQuantRewrite ConstantSharing
CommonSubexpressionElimination ConstantFolding ConstantFoldingDQ MatMulAddFusion ReshapeFusion
GeluFusionL1 LayerNormFusionL1 SimplifiedLayerNormFusion AttentionFusion QDQPropagationTransformer
EnsureUniqueDQForNodeUnit WeightBiasQuantization TransposeOptimizer DoubleQDQPairsRemover
RemoveDuplicateCastTransformer GatherSliceToSplitFusion GatherToSliceFusion SliceConcatToSpaceToDepthFusion
""".split()

EXTENDED = """
QDQS8ToU8Transformer QDQSelectorActionTransformer GemmActivationFusion MatMulIntegerToFloatFusion
DynamicQuantizeMatMulFusion ConvActivationFusion GeluFusion GeluFusionL2 LayerNormFusion LayerNormFusionL2
SkipLayerNormFusion BiasSkipLayerNormFusion EmbedLayerNormFusion BiasDropoutFusion MatmulTransposeFusion
BiasGeluFusion FastGeluFusion QuickGeluFusion BiasSoftmaxFusion MatMulScaleFusion MatMulActivationFusion
GroupQueryAttentionFusion GroupQueryAttentionPreNormFusion SwiGluFusion MatMulNBitsFusion DQMatMulNBitsFusion
QDQFinalCleanupTransformer Avx2WeightS8ToU8Transformer
""".split()

LAYOUT = "NchwcTransformer NhwcTransformer ConvAddActivationFusion".split()

PASSES = BASIC + EXTENDED + LAYOUT
